"""Pages of profd in a real browser: each worker that runs these tests starts one Chromium for all
of them.
"""
