"""What the user writes: YAML with places, overlays and arms, a typed schema, faults with file, line, key."""
