"""The dashboard of Lumen: reads the files that servers and benches wrote, and draws them.

It knows the files' formats and nothing of the server's insides. `sources` reads, `stats` reckons,
`figures` draws, `views` are the pages. Modules import each other relatively: in the source tree the
package is `dashboard`, in a wheel `lumen_engine._app.dashboard`.
"""
