# Of a container of a pod's manifest: the configuration that a container runtime would be given for it (config.json of the OCI).
# Input: what `crun spec` prints. Arguments:
#   $pod      the pod's spec           $name     of the container
#   $image    config of the image      $root     folder with its files
#   $volumes  folders by volume        $fields   values by path, for `fieldRef`
#   $seccomp  a profile, in Docker's form, or null
# What it does not know it leaves out: probes, AppArmor, requests.
def in_all: . as $names | {bounding: $names, effective: $names, permitted: $names, inheritable: [], ambient: []};

($pod.containers[] | select(.name == $name)) as $c
| $c.securityContext as $s
| ([$c.env // [] | .[] | {key: .name, value: (.value // $fields[.valueFrom.fieldRef.fieldPath])}] | from_entries) as $env
| .root = {path: $root, readonly: ($s.readOnlyRootFilesystem // false)}
| .hostname = $name
| .process.terminal = false
| .process.cwd = "/"
| .process.user = {uid: $s.runAsUser, gid: $s.runAsGroup, additionalGids: ([$pod.securityContext.fsGroup] + ($pod.securityContext.supplementalGroups // []) | unique)}
| .process.args = (($c.command // $image.Entrypoint) + ($c.args // [])
    | map(reduce ($env | to_entries[]) as $e (.; gsub("\\$\\(" + $e.key + "\\)"; $e.value))))
| .process.env = $image.Env + ($env | to_entries | map(.key + "=" + .value))
| .process.noNewPrivileges = ($s.allowPrivilegeEscalation == false)
# A user other than root gets none into its effective set.
| .process.capabilities = (if $s.runAsUser == 0 then ($s.capabilities.add // [] | map("CAP_" + .)) else [] end | in_all)
| .mounts += [$c.volumeMounts[] | {destination: .mountPath, source: $volumes[.name], type: "bind",
    options: ["rbind", "rprivate", (if .readOnly then "ro" else "rw" end)]}]
# The network is the host's, so that the test can ask; a pod has one of its own.
| .linux.namespaces |= map(select(.type != "network" and (.type != "pid" or ($pod.hostPID | not))))
| if $c.resources.limits.memory then .linux.resources.memory.limit = ($c.resources.limits.memory | capture("^(?<n>[0-9]+)(?<unit>[MG])i$")
    | (.n | tonumber) * (if .unit == "G" then 1073741824 else 1048576 end)) else . end
| if $seccomp then .linux.seccomp = ($seccomp | {defaultAction, defaultErrnoRet, architectures: [.archMap[].architecture],
    syscalls: [.syscalls[] | {names, action} + (if .errnoRet then {errnoRet} else {} end) + (if (.args | length) > 0 then {args} else {} end)]}) else . end
