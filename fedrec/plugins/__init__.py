"""One file per plug-in: `PLUGIN(backbone, settings, items)` is a method that extends a backbone."""
