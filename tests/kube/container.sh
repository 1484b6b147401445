# A container of the tests: a root of its own with this machine's programs and no /tmp of others, in a mount and a PID namespace of its own.
# usage: container.sh ROOT WORKDIR FILES [SOURCE TARGET]... -- COMMAND...   (see kubelet.py)
set -e
root=$1 workdir=$2 files=$3
shift 3
mount -t tmpfs -o mode=755 container "$root"
for entry in /*; do
  if [ -L "$entry" ]; then
    cp -P "$entry" "$root$entry"
  elif [ "$entry" = /proc ] || [ "$entry" = /tmp ]; then
    mkdir -m 1777 "$root$entry"
  elif [ "$entry" = /root ]; then # closed to the pod's user; an interpreter that lies there is mounted by itself
    mkdir -m 755 "$root$entry"
  elif [ -d "$entry" ]; then
    mkdir "$root$entry"
    mount --rbind "$entry" "$root$entry"
  fi
done
for entry in "$files"/*; do # what the image has beyond this machine, such as in /etc
  name=${entry##*/}
  [ -d "$entry" ] && mount -t overlay -o "lowerdir=$entry:/$name" image "$root/$name"
done
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 container "$root/var/tmp"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
shift
exec /usr/sbin/chroot "$root" env -C "$workdir" "$@"
