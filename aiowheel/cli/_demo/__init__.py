"""The parts of `aiowheel demo`. Rank 5; needs the extras `cli`, `web` and `trace`.

A crowd of HTTP clients before a long-poll server (`_crowd`, `_app`, `_server`, `_connection`),
many operations held at once (`_hold`), the Spark report on both (`_report`), an access log of the
user's (`_log`), and the words that tell of it (`_story`); `_run` strings them together.
"""
