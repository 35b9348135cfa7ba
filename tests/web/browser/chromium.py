"""Which Chromium the tests drive, and how it is started. Does not start it."""

import os
import shutil

EXECUTABLE = (
    os.environ.get("VIVACE_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
)

# Each context is a window, and each window of Chromium 150 loads two pages for its address bar that nobody
# sees: as much work as the page under test. Nor is the renderer used that stands ready for another site.
_UNSEEN = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "SpareRendererForSitePerProcess",
)
# The switch counts once: what Playwright turns off by it must be named again.
_PLAYWRIGHTS = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
)
ARGUMENTS = ["--no-sandbox", f"--disable-features={','.join((*_PLAYWRIGHTS, *_UNSEEN))}"]
