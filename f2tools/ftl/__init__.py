"""Flash translation layers: what a load or a trace costs the flash below, by model, with theory beside it."""
