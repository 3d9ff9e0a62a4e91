"""Plan what to build from the configuration and the available data. No torch, polars or Snakemake."""
