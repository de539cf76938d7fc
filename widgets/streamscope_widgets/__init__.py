"""Streamscope's views in a notebook: timelines, pictures, reports.

``timeline.timeline`` makes the live timelines of several engines, ``report.report`` writes them to one HTML file. The modules are
imported by name, so that a report needs no notebook libraries and ``import streamscope_widgets`` costs nothing.
"""
