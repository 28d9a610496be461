if [ "$1" -eq 0 ]; then
    ! command -v systemctl >/dev/null || systemctl --no-reload disable isotherm-ship.service isotherm-serve.service isotherm.service || :
    [ ! -d /run/systemd/system ] || systemctl stop isotherm-ship.service isotherm-serve.service isotherm.service || :
    [ ! -s /run/isotherm/isotherm.journal ] || echo "isotherm: huge pages that were made stay until their processes end (isotherm undo before a removal splits them)"
fi
