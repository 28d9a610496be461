if [ "$1" -eq 0 ]; then
    [ ! -d /run/systemd/system ] || systemctl disable --now isotherm-ship.service isotherm-serve.service isotherm.service || :
    [ ! -s /run/isotherm/isotherm.journal ] || echo "isotherm: huge pages that were made stay until their processes end (isotherm undo before a removal splits them)"
fi
