if [ "$1" -eq 0 ]; then
    rm -rf /run/isotherm /etc/isotherm/serve.token
    [ ! -d /run/systemd/system ] || systemctl daemon-reload || :
fi
