"""Charts as Vega-Lite specs."""
