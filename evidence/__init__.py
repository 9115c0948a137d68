"""Evidence: what users see, as fingerprints that a change of the code must leave as they are."""
