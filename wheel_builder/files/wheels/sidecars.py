"""Names of the files next to a wheel: the wheel's name plus one of these suffixes."""

# Files that may be published next to a wheel, by kind.
ATTACHMENTS = {"verification": ".verification.json", "provenance": ".provenance.json"}
# The index's own facts about a published wheel.
RECORD_SUFFIX = ".record.json"
# The wheel's METADATA, as PEP 658 specifies, and the mark of a withdrawn file.
METADATA_SUFFIX = ".metadata"
YANK_SUFFIX = ".yanked.json"
# The index's facts about the variants of a published wheel (PEP 825).
VARIANTS_SUFFIX = ".variants.json"
