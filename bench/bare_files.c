/*
 * The least that making a tree of files costs on a host's file system: for each line of standard input one directory,
 * file or symbolic link below the current directory, with as few calls as there can be, content from one buffer.
 *
 *	d PATH
 *	f SIZE PATH
 *	l TARGET PATH
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char content[1 << 20];

static void make_file(int dir, const char *name, size_t size)
{
	const struct timespec times[2] = { { 1700000000, 1 }, { 1700000000, 1 } };
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		err(1, "%s", name);
	while (size) {
		size_t some = size < sizeof(content) ? size : sizeof(content);
		ssize_t done = write(fd, content, some);

		if (done <= 0)
			err(1, "%s", name);
		size -= done;
	}
	if (futimens(fd, times) || close(fd))
		err(1, "%s", name);
}

int main(void)
{
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	int dir = AT_FDCWD;

	memset(content, 'x', sizeof(content));
	while ((length = getline(&line, &room, stdin)) > 0) {
		char *path, *name;

		line[length - 1] = 0;
		path = strrchr(line, ' ') + 1;
		name = strrchr(path, '/');
		name = name ? name + 1 : path;
		if (line[0] == 'd') { /* what follows is in it, until the next one */
			if (dir != AT_FDCWD)
				close(dir);
			if (mkdir(path, 0755))
				err(1, "%s", path);
			dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (dir < 0)
				err(1, "%s", path);
		} else if (line[0] == 'f') {
			make_file(dir, name, strtoull(line + 2, NULL, 10));
		} else {
			path[-1] = 0;
			if (symlinkat(line + 2, dir, name))
				err(1, "%s", name);
		}
	}
	return 0;
}
