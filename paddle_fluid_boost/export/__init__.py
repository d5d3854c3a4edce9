"""Offline export."""
