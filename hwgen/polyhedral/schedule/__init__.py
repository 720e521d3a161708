"""Schedules by hand: primitives, scripts, and tilings as edits."""
