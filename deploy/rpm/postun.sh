if [ "$1" -eq 0 ]; then
    rm -rf /run/isotherm /etc/isotherm/serve.token
    # What somebody has written stays, as changed settings do.
    [ -s /etc/isotherm/store.credentials ] || rm -f /etc/isotherm/store.credentials
    [ ! -d /run/systemd/system ] || systemctl daemon-reload || :
fi
