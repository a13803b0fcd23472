# ci/cache.sh, to be sourced: sets and makes $cache, the folder of PostgreSQL installations and sources. It
# is $NITRO_PG_CACHE if set. For root it is /var/cache/nitro/pg, because the tests then run as a user that
# cannot enter root's home. Otherwise it is ~/.cache/nitro/pg.
if [ "$(id -u)" = 0 ]; then cache=/var/cache/nitro/pg; else cache=${XDG_CACHE_HOME:-$HOME/.cache}/nitro/pg; fi
cache=${NITRO_PG_CACHE:-$cache}
mkdir -p "$cache"; cache=$(cd "$cache" && pwd)
