systemd-sysusers isotherm.conf || :
[ ! -d /run/systemd/system ] || systemd-tmpfiles --create isotherm.conf || :
# Whole or not at all: an empty one would stay.
if [ ! -s /etc/isotherm/serve.token ]; then
    token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
    [ ${#token} -ne 32 ] || { (umask 077 && printf %s "$token" >/etc/isotherm/serve.token.new) && mv /etc/isotherm/serve.token.new /etc/isotherm/serve.token; } || :
fi
[ -e /etc/isotherm/store.credentials ] || (umask 077 && : >/etc/isotherm/store.credentials) || :
# By the presets of the distribution: it decides what is enabled, in an image too, where no systemd runs. Nothing is started.
[ "$1" -ne 1 ] || ! command -v systemctl >/dev/null || systemctl --no-reload preset isotherm.service isotherm-serve.service isotherm-ship.service || :
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -eq 1 ] || systemctl try-restart isotherm.service isotherm-serve.service isotherm-ship.service || :
fi
