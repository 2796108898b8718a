# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
"""Python without torch: works briefly and waits."""
import time

print("ready", flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    sum(range(1000))
    time.sleep(0.05)
