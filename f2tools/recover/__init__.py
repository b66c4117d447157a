"""`f2tools recover`: what a crash left, explained and brought back."""
