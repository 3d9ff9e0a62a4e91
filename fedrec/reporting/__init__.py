"""Tables, figures and the page, built from finished runs without training."""
