"""`f2tools vsl`: images of a virtualized storage layer made, looked at, checked, trimmed and exported."""
