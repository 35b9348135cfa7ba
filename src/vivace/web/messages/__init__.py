"""What faces and the face host say to each other: `requests` from a face, `answers` and `events` to it."""
