"""A picture of a run, as one HTML page.

    backend -> History -> lanes -> spent, curves, happenings -> model -> page
               (facts)    (who did what, when)                  (what    (launcher/templates)
                                                                 is shown)

Everything up to `page` is pure. Times are seconds since the epoch until `model` puts them in words.
"""
