"""The parts of `aiowheel demo`. Needs the extras `cli`, `web` and `trace`.

Part 1: HTTP clients of a long-poll server (`_crowd`, `_app`, `_server`, `_connection`). Part 2:
many pending operations (`_hold`). Part 3: the Spark report on both (`_report`). `_log` searches the
user's access log, `_story` describes the results, and `_run` runs the parts in order.
"""
