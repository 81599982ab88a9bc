"""Admission: sees objects before they are stored, fills in defaults and refuses mistakes."""
