"""Policy: actions and plugins under their Volcano names."""
