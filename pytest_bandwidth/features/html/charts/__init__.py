"""Draw charts as Vega-Lite specs."""
