"""The report of a run: one HTML page.

    backend -> History -> timelines -> breakdown, curves, events -> model -> page
               (facts)    (who did what, when)                      (what    (launcher/templates)
                                                                     is shown)

Everything up to `page` is pure. Times are seconds since the epoch until `model` makes text of them.
"""
