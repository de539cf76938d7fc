"""The kit that everything shown is made with: templates that escape, tables, SVG, colours, charts."""
