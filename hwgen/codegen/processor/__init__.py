"""Schedules of statements as programs for a processor: lowering and emission."""
