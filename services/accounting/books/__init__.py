"""The pure core: from events and facts to rows."""
