import { useRef } from "react";

interface Props {
  name: string;
  title: string;
  says: string;
  onYes: () => void;
  danger?: boolean;
  disabled?: boolean;
}

/** A button that asks before it does something. */
export function Confirm({ name, title, says, onYes, danger, disabled }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  return (
    <>
      <button
        type="button"
        className={danger ? "danger" : undefined}
        disabled={disabled}
        onClick={() => dialog.current?.showModal()}
      >
        {name}
      </button>
      <dialog ref={dialog} aria-label={title}>
        <form method="dialog">
          <h2>{title}</h2>
          <p className="soft">{says}</p>
          <div className="actions">
            <button type="submit">Leave it</button>
            <button type="submit" className="main" onClick={onYes}>
              {name}
            </button>
          </div>
        </form>
      </dialog>
    </>
  );
}
