# ci/cache.sh, to be sourced: sets and makes $cache, where PostgreSQL installations and sources are kept:
# $NITRO_PG_CACHE, else /var/cache/nitro/pg for root, because the tests then run as another user who cannot
# enter root's home, and ~/.cache/nitro/pg otherwise.
if [ "$(id -u)" = 0 ]; then cache=/var/cache/nitro/pg; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/nitro/pg; fi
cache=${NITRO_PG_CACHE:-$cache}
mkdir -p "$cache"; cache=$(cd "$cache" && pwd)
