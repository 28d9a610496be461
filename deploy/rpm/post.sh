systemd-sysusers isotherm.conf || :
[ ! -d /run/systemd/system ] || systemd-tmpfiles --create isotherm.conf || :
[ -e /etc/isotherm/serve.token ] || (umask 077 && od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >/etc/isotherm/serve.token) || :
[ -e /etc/isotherm/store.credentials ] || (umask 077 && : >/etc/isotherm/store.credentials) || :
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # By the presets of the distribution: it decides what is enabled. Nothing is started.
    [ "$1" -ne 1 ] || systemctl preset isotherm.service isotherm-serve.service isotherm-ship.service || :
    [ "$1" -eq 1 ] || systemctl try-restart isotherm.service isotherm-serve.service isotherm-ship.service || :
fi
