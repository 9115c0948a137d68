"""The trainer measured with torch."""
