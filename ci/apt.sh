# ci/apt.sh, to be sourced: an apt of our own, for packages of another suite of Debian. It needs no rights
# and leaves the system's lists alone.
#   own_apt FOLDER 'deb SUITE'...   sets $site and APT_CONFIG, and fetches the lists; `deb-src` for sources
own_apt() {
    local folder=$1 key=/usr/share/keyrings/debian-archive-keyring.gpg line; shift
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial" "$folder/preferences.d"; touch "$folder/status"
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Label: Debian' | sed -n 1p)
    # Before the first update apt does not know the labels.
    [ -n "$site" ] || site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | sed -n 1p)
    [ -n "$site" ] || { echo "$0: apt has no Debian mirror configured" >&2; return 1; }
    for line; do
        echo "${line% *} $([ ! -f $key ] || echo "[signed-by=$key]") $site ${line#* } main"
    done > "$folder/sources.list"
    cat > "$folder/apt.conf" <<C
Dir::State "$folder"; Dir::State::Lists "$folder/lists"; Dir::State::status "$folder/status"; Dir::Cache "$folder/cache";
Dir::Etc::sourcelist "$folder/sources.list"; Dir::Etc::sourceparts "-"; Dir::Etc::preferencesparts "$folder/preferences.d";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; Acquire::Retries "3"; APT::Sandbox::User "root";
APT::Install-Recommends "false";
C
    export APT_CONFIG=$folder/apt.conf
    apt-get -qq update >&2
}
