"""Every message, subject and stream that crosses a process border."""
