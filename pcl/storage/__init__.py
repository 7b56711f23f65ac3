"""Atomic file writes, in folders and in object stores; locks."""
