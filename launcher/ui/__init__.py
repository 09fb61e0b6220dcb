"""The runs as pages of a browser, which follow them.

    browser -> server -> site -> shared_read -> backend
               (who may  (which   (one read for
                ask)      page)    all who look)

A page is the report's own template (launcher/templates), rendered anew; `ui.js` changes in the page that is
shown what differs. Nothing is read while nobody looks, and nothing is ever written.
"""
