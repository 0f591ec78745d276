"""Many programs that users have, each compiled with the defaults and compared with eager."""
