"""Schedules found automatically, by the public primitives alone."""
