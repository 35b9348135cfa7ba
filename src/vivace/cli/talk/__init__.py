"""Talk about code: `vivace` alone or with `-p`, `ask`, `web`, and what is remembered (`memory`, `init`)."""
