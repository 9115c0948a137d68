"""Evidence for the claims that the documents make: claims of published systems, benchmarks and generated pages."""
