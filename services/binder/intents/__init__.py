"""Pure part of the binder: what an intent means and how it ends."""
