"""ptanalyze's native tools, as files beside this one; `ptanalyze.capture.live.native` finds them here."""
