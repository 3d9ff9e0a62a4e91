"""Tables: one file per layout, found by its name; `table` has the forms they are written in."""
