"""What is to be built, from the configuration and the data available. No torch, polars or Snakemake."""
