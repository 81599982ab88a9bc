"""Every message, subject and stream that crosses a process border, with versions.

This is the only place where the services meet. Read in this order: `subjects` (where a message
goes), `streams` (how long it stays), `messages` (what it says), `codec` (its bytes), `versions`
(what a reader accepts), `permissions` (who may publish and subscribe what).
"""
